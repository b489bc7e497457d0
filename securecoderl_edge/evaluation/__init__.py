"""Evaluation of models x problems x samples: metrics, intervals and tables."""
