.PHONY: proto
PYTHON ?= python3
VENV ?= .venv
proto:
	$(VENV)/bin/python -m grpc_tools.protoc -I proto --python_out=proto --pyi_out=proto --grpc_python_out=proto proto/sandbox_api/v1/sandbox.proto
