"""The executor for models on a server that speaks the Open Inference Protocol (KServe v2), such as Triton and MLServer."""
