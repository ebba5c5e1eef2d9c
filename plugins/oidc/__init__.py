"""Login to the pages at an OpenID provider."""
