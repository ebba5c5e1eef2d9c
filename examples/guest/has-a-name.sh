#!/bin/sh
# A text file of this archive begins with its name.
if head -n 1 "$1" | grep -q '^Name: '; then exit 0; fi
printf '{"verdict": "found", "code": "no-name", "message": "the first line does not begin with Name:"}\n'
exit 1
