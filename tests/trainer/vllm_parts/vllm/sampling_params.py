"""See the package."""


class StructuredOutputsParams:
    """Of `LLM`."""
