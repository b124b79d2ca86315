"""Streaming Markdown with a colour per character. Pure: text and provenance in, lines of styled runs out; no Textual.

wrap        text -> rows by cell width
align       rendered text -> the source characters that it came from
render      markdown-it tokens -> lines
splitter    where a growing text may be cut for good
document    the three together: feed text, read lines
"""
