#!/bin/sh
# Builds and signs the packages, and makes these repositories below /repositories: good; foreign (a package is signed with a key
# that the base does not know), bare (it has no signature), both with an index that is signed well; plain (no signature of its
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

package() { # name, version, more lines of its preamble
    cat > /tmp/package.spec << EOF
Name: $1
Version: $2
Release: 1.mini1
Summary: $1 of the miniature distribution
License: MIT
BuildArch: noarch
$3
%description
It holds one file.
%install
mkdir -p %{buildroot}/usr/share/mini
echo $2 > %{buildroot}/usr/share/mini/$1
%files
/usr/share/mini/$1
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
cp /repositories/good/python* /repositories/good/mini-[lor]* /repositories/bare
sign foreign /repositories/foreign/mini-tool-2.0*.rpm
index /repositories/good
index /repositories/bare
index /repositories/foreign
createrepo_c --quiet /repositories/plain
