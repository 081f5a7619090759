"""Names of types: Millstream's, and ONNX Runtime's."""

ONNX_TYPES = {
    "float16": "tensor(float16)",
    "float32": "tensor(float)",
    "float64": "tensor(double)",
    "int32": "tensor(int32)",
    "int64": "tensor(int64)",
    "bool": "tensor(bool)",
    "string": "tensor(string)",
}
"""`dtype` -> ONNX Runtime's type."""

DTYPES = {onnx: dtype for dtype, onnx in ONNX_TYPES.items()}
"""ONNX Runtime's type -> `dtype`."""
