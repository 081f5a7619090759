"""faust-streaming."""
