"""Texts become terms, a vocabulary of them, and numbers."""
