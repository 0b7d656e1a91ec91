"""TO THE AUTHOR of RecordedKernel (attach points): the analysis engineer overwrote this uncommitted file by mistake at
21:28; the text could not be recovered. Please write it again from what you have (and commit it). Sorry."""

raise ImportError(__doc__)
