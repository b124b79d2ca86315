"""Files that hold models, read with distrust: numbers of a header are checked against the file before they are used."""
