"""The executor for servers with OpenAI's HTTP API: vLLM, SGLang, TGI, Ollama, llama.cpp and hosted ones."""
