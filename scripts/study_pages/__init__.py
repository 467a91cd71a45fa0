"""The pages of the studies, made from their reports."""
