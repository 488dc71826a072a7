"""Model classes that SGLang loads in the place of its own, when SGLANG_EXTERNAL_MODEL_PACKAGE names this package."""
