"""Files of a release, made and tried: wheels, source archive, Debian package, list of parts."""
