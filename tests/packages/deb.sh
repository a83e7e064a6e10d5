# Installs, uses, upgrades, removes and purges the Debian package. Lines that the test compares begin with ">".
set -e
show() { printf '> %s %s\n' "$1" "$(stat -c '%U:%G %a' "$1")"; }
package=$(ls /mnt/*.deb)
apt-get install -y -q "$package"
dpkg --verify pegel
echo "> user $(id -un pegel):$(id -gn pegel)"
show /etc/pegel
show /etc/pegel/pegel.yaml
show /run/pegel/lanes
echo "> $(systemctl is-enabled pegel.service)"
systemd-analyze verify --man=no pegel.service

# As systemd would: the command of the unit, as its user, with its state directory.
install -d -o pegel -g pegel -m 700 /var/lib/pegel
command=$(sed -n 's/^ExecStart=//p' /usr/lib/systemd/system/pegel.service)
# shellcheck disable=SC2086 # The words of the command.
setpriv --reuid pegel --regid pegel --clear-groups --no-new-privs $command &
agent=$!
tries=0
until pegel get node_load1 >/tmp/value 2>/tmp/errors; do
    tries=$((tries + 1))
    if [ "$tries" -gt 300 ]; then cat /tmp/errors >&2; exit 1; fi
    sleep 0.1
done
echo "> running $(pegel --version | cut -d ' ' -f 2)"
echo "> $(grep -o node_load1 /tmp/value | head -n 1)"
kill -TERM "$agent"
wait "$agent"

echo "# of the administrator" >> /etc/pegel/pegel.yaml
apt-get install -y -q --reinstall "$package"
tail -n 1 /etc/pegel/pegel.yaml | grep -q "of the administrator"
test "$(stat -c %G /etc/pegel/pegel.yaml)" = pegel
echo "> upgraded: changed configuration kept"
apt-get remove -y -q pegel
test ! -e /usr/bin/pegel
test -e /etc/pegel/pegel.yaml
test -n "$(ls /var/lib/pegel)"
echo "> removed: configuration and samples kept"
apt-get purge -y -q pegel
left=$(find /etc /usr /var /run /lib -xdev -iname '*pegel*' ! -path '*/dpkg/*' ! -path '/var/log/*')
if [ -n "$left" ]; then echo "left behind: $left" >&2; exit 1; fi
echo "> purged"
