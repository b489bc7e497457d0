"""HumanEval and MBPP as published, compressed; README.md in this folder has authors, licenses and sources."""
