"""The appearance of all pictures and pages: palette, type, SVG, labels and charts, without a drawing library."""
