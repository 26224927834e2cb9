#!/bin/sh
# Builds and signs the packages, and makes these repositories below /repositories: good; foreign (two packages are signed with a key
# that the base does not know), bare (they have no signature), both with an index that is signed well; plain (no signature of its
# index). Below /repositories/base lies what the base holds of them: the key, and where dnf looks.
set -eu
export HOME=/root GNUPGHOME=/root/.gnupg
mkdir -m 700 "$GNUPGHOME"
for name in mini foreign; do
    printf '%%no-protection\nKey-Type: RSA\nKey-Length: 2048\nName-Real: %s\nExpire-Date: 0\n%%commit\n' $name > /tmp/key
    gpg --batch --quiet --gen-key /tmp/key
done
base=/repositories/base/etc
mkdir -p $base/pki/rpm-gpg $base/yum.repos.d /repositories/good
gpg --armor --export mini > $base/pki/rpm-gpg/RPM-GPG-KEY-mini
cat > $base/yum.repos.d/mini.repo << EOF
[mini]
name=The miniature distribution
baseurl=http://mini.invalid/good
gpgcheck=1
gpgkey=file:///etc/pki/rpm-gpg/RPM-GPG-KEY-mini
[unused]
name=A repository that nobody asks for
baseurl=http://mini.invalid/unused
EOF

package() { # name, version, more lines of its preamble; a program that it brings, and the program's commands
    rm -rf /tmp/root
    mkdir -p /tmp/root/usr/share/mini /tmp/root/usr/bin
    echo "$2" > "/tmp/root/usr/share/mini/$1"
    if [ $# -gt 3 ]; then
        printf '#!/bin/sh\n%s\n' "$5" > "/tmp/root/usr/bin/$4"
        chmod 755 "/tmp/root/usr/bin/$4"
    fi
    cat > /tmp/package.spec << EOF
Name: $1
Version: $2
Release: 1.mini1
Summary: $1 of the miniature distribution
License: MIT
BuildArch: noarch
AutoReqProv: no
$3
%description
It holds one file or two.
%install
cp -r /tmp/root/. %{buildroot}
%files
$(cd /tmp/root && find . -type f | cut -c 2-)
EOF
    rpmbuild --quiet -bb /tmp/package.spec
}
package mini-release 1 'Provides: system-release = 1'
package mini-old 1.0 ''
package mini-old 2.0 ''
package mini-libs 1.5 'Epoch: 1
Requires: mini-old >= 2'
package mini-tool 2.0 'Requires: mini-libs
Provides: a-tool'
package python3.11 3.11.2 'Requires: mini-libs'
package python3 3.11.2 'Requires: python3.11'
package mini-tool++ 1^20260101 ''
# Stand-ins for what a graft adds.
package mini-mpi 4.1.7 'Requires: mini-libs' mpirun 'echo "mpirun (Open MPI) 4.1.7"'
package mini-fabric 1.22.0 '' fi_info 'echo "libfabric: 1.22.0"'
package mini-ssh 9.9 '' ssh 'echo OpenSSH_9.9'
# shellcheck disable=SC2016  # the variables are the tool's own
package mini-cc 1 'Requires: mini-fabric' x86_64-linux-gnu-gcc \
    'while [ $# -gt 0 ]; do if [ "$1" = -o ]; then : > "$2"; fi; shift; done'

sign() { # key, files
    key=$1
    shift
    rpm --define "_gpg_name $key" --define '__gpg /usr/bin/gpg' --addsign "$@" > /dev/null
}
index() { # folder
    createrepo_c --quiet "$1"
    gpg --batch --local-user mini --detach-sign --armor "$1/repodata/repomd.xml"
}
find /root/rpmbuild/RPMS -name '*.rpm' -exec cp {} /repositories/good \;
cp -r /repositories/good /repositories/bare
sign mini /repositories/good/*.rpm
cp -r /repositories/good /repositories/foreign
cp -r /repositories/good /repositories/plain
cp /repositories/good/python* /repositories/good/mini-[flors]* /repositories/bare
sign foreign /repositories/foreign/mini-tool-2.0*.rpm /repositories/foreign/mini-mpi-*.rpm
index /repositories/good
index /repositories/bare
index /repositories/foreign
createrepo_c --quiet /repositories/plain
