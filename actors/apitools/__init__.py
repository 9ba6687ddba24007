"""The API tools room: tools declared over the API, their attachments and call history, and flows that use them."""
