"""Texts and tables that the command line and the pages share."""
