"""Files that depositors upload: kept in a folder of the site until their batch no longer needs them."""
