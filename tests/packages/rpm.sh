# Installs, upgrades and removes the rpm. This system has no database of rpm packages, so that the libraries which the package
# requires are not registered: --nodeps. Lines that the test compares begin with ">".
set -e
show() { printf '> %s %s\n' "$1" "$(stat -c '%U:%G %a' "$1")"; }
package=$(ls /mnt/*.rpm)
rpm --install --nodeps "$package"
rpm --verify --nodeps pegel
show /etc/pegel
show /etc/pegel/pegel.yaml
show /run/pegel/lanes
pegel --version
systemd-analyze verify --man=no pegel.service
echo "# of the administrator" >> /etc/pegel/pegel.yaml
rpm --upgrade --nodeps --force "$package"
tail -n 1 /etc/pegel/pegel.yaml | grep -q "of the administrator"
echo "> upgraded: changed configuration kept"
rpm --erase --nodeps pegel
left=$(find /usr /lib /etc/systemd /etc/logrotate.d -xdev -iname '*pegel*')
if [ -n "$left" ]; then echo "left behind: $left" >&2; exit 1; fi
echo "> removed"
