"""The store on SQLite: one file, one writer, group commit."""
