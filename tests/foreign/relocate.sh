# Runs in a Debian image: put its Python under another prefix, laid out as Python's own installation and conda's are.
# $1 is the prefix: /usr/local, /opt/conda.
set -eu
number=$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
mkdir -p "$1/bin" "$1/lib/python$number"
cp -a "/usr/lib/python$number/." "$1/lib/python$number/"
cp "/usr/bin/python$number" "$1/bin/"
ln -s "python$number" "$1/bin/python3"
ln -s python3 "$1/bin/python"
rm -f "$1/lib/python$number/EXTERNALLY-MANAGED"
mkdir -p "$1/lib/python$number/site-packages"
# Debian's changes lead to dist-packages. Its `site` is frozen into the interpreter, so a .pth file leads on from there.
mkdir -p "$1/lib/python$number/dist-packages"
echo "$1/lib/python$number/site-packages" > "$1/lib/python$number/dist-packages/site-packages.pth"
sed -i "s/prefix_scheme = 'posix_local'/prefix_scheme = 'posix_prefix'/" "$1/lib/python$number/sysconfig.py"
