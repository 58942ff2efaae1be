# shellcheck shell=bash
# What .ci/run, .ci/examples and .ci/ways share.

# veil hides the names of hosts in what a package manager says.
veil() {
  sed -E -e 's#https?://[^/[:space:]"]+#(host)#g' -e 's#lookup [^[:space:]]+( on [^[:space:]]+)?:#lookup (host):#g'
}

# quietly runs a command and shows its output only where it fails.
quietly() {
  local log status=0
  log=$(mktemp)
  "$@" >"$log" 2>&1 || status=$?
  [ "$status" = 0 ] || veil <"$log" | tail -n 30
  rm -f "$log"
  return "$status"
}

# debian installs Debian packages. It fails where it may not or cannot.
debian() {
  if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "not installed: $* (needs root and apt-get)"
    return 1
  fi
  echo "installing $*"
  quietly apt-get update -qq && DEBIAN_FRONTEND=noninteractive quietly apt-get install -y -qq --no-install-recommends "$@"
}
