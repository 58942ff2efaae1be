# shellcheck shell=bash
# What the scripts of this folder share.

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

# settled COMMAND…: runs a command that looks for programs, while no other step installs packages: a program
# may be there before what it needs.
settled() (
  if [ "$(id -u)" = 0 ]; then exec 9>>/var/lock/fetchd-ci && flock -s 9; fi
  "$@"
)

# has NAME: reports whether there is this program.
has() { settled command -v "$1" >/dev/null; }

# debian installs Debian packages. It fails where it may not or cannot.
debian() {
  if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "not installed: $* (needs root and apt-get)"
    return 1
  fi
  echo "installing $*"
  # Only one step at a time.
  (
    flock 9
    quietly apt-get update -qq && DEBIAN_FRONTEND=noninteractive quietly apt-get install -y -qq --no-install-recommends "$@"
  ) 9>/var/lock/fetchd-ci
}

# sources PATTERN…: lists tracked and new files, separated by NUL.
sources() {
  git ls-files -z --cached --others --exclude-standard -- "$@" |
    while IFS= read -r -d '' file; do
      if [ -f "$file" ]; then printf '%s\0' "$file"; fi
    done
}

# npm_modules FOLDER: installs the packages of FOLDER/package-lock.json, and prints the folder that
# has node_modules. It is outside the tree, and named by a hash of its inputs.
npm_modules() (
  cache=${XDG_CACHE_HOME:-$HOME/.cache}/fetchd-ci
  modules=$cache/node-$({ node --version; cat "$1/package-lock.json"; } | sha256sum | cut -c1-16)
  if [ ! -d "$modules" ]; then
    mkdir -p "$cache"
    new=$(mktemp -d "$cache/new.XXXXXX")
    trap 'rm -rf "$new"' EXIT
    cp "$1/package.json" "$1/package-lock.json" "$new/"
    quietly npm ci --prefix "$new" --ignore-scripts --no-audit --no-fund >&2 || return
    mv -T "$new" "$modules" 2>/dev/null || [ -d "$modules" ] # another run may have been faster
  fi
  echo "$modules"
)

# The functions below start programs of the folder $work, which the caller makes.
started=()

# stop_programs ends the programs. It is for trap stop_programs EXIT.
stop_programs() {
  local status=$? pid
  for pid in "${started[@]}"; do kill "$pid" 2>/dev/null || true; done
  for pid in "${started[@]}"; do wait "$pid" 2>/dev/null || true; done
  if [ "$status" != 0 ]; then tail -n 20 "$work"/*.log 2>/dev/null || true; fi
  rm -rf "$work"
}

# programs NAME…: puts these programs of ours into the folder $work: those of TEST_PROGRAMS, or new ones.
programs() {
  if [ -n "${TEST_PROGRAMS:-}" ]; then
    (cd "$TEST_PROGRAMS" && cp "$@" "$work/")
  else
    CGO_ENABLED=0 go build -o "$work/" "${@/#/./cmd/}"
  fi
}

# start NAME ARG…: starts a program, with its output in a log.
start() {
  "$work/$1" "${@:2}" >"$work/$1.log" 2>&1 &
  started+=($!)
}

# await NAME COMMAND…: waits until the command succeeds, at most 15 seconds.
await() {
  local until=$((SECONDS + 15))
  until "${@:2}" >/dev/null 2>&1; do
    if [ "$SECONDS" -ge "$until" ] || { [ "${#started[@]}" -gt 0 ] && ! kill -0 "${started[-1]}" 2>/dev/null; }; then
      echo "$1 did not become ready"
      return 1
    fi
    sleep 0.1
  done
}

accepts() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# free_ports N: prints N ports on which nothing listens. They are below those that the system gives to
# connections and to listeners on port 0, so that none of them takes one before the caller does.
free_ports() {
  local port ports=()
  while [ "${#ports[@]}" -lt "$1" ]; do
    port=$((10000 + RANDOM % 22000))
    if ! accepts "$port" && [[ " ${ports[*]} " != *" $port "* ]]; then ports+=("$port"); fi
  done
  echo "${ports[*]}"
}
