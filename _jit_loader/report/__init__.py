"""The text that people read: the build line, errors, symbols, reasons, tables."""
