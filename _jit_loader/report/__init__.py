"""Messages to the user: the build line, errors, symbols, reasons and tables."""
