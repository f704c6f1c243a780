#!/bin/sh
echo "the monorepo's own //tools/launch, which knows no ranks" >&2
exit 1
