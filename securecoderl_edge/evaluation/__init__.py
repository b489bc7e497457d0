"""Models x problems x samples: figures, intervals and tables."""
