"""Text to token ids and back: templates, tokenizer, reasoning marks, images. Knows no decoding."""
