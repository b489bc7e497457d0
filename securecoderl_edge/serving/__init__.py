"""``sce serve``: an HTTP server in OpenAI's format whose programs are tested and scanned, and a page for it."""
