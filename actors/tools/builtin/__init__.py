"""The toolsets that come with the library, one file each."""
