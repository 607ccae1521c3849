"""Files: the native formats, CSV and data frames."""
