"""Reports: strings out of report values. Nothing here prints or decides."""
