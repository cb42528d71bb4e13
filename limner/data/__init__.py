"""Pictures and captions: records, readers, decoding, vocabulary, batches."""
