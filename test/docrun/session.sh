# Runs the shell blocks of a document, FOLDER/N.sh in the order of N, in this shell. The output
# goes to FOLDER/N.out. If FOLDER/N.twice exists, the block runs again, with its output in
# FOLDER/N.again. FOLDER/N.status gets the exit status of the first command that fails. If
# FOLDER/N.exit exists, it names the expected status, which is that of the last command. The shell
# has its own namespaces for network, mounts and processes, in which COPY replaces TREE.
#
#   session.sh TREE COPY FOLDER
set -eu
docrun_folder=$3
ip link set lo up
mount --bind "$2" "$1"
cd "$1"
unset http_proxy https_proxy all_proxy no_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY NO_PROXY
set +u
docrun_started=''
exec </dev/null

# docrun_serves PID: reports whether the process listens.
docrun_serves() {
  local inode
  for inode in $(find "/proc/$1/fd" -lname 'socket:*' -printf '%l\n' 2>/dev/null | tr -dc '0-9\n'); do
    if docrun_listening | grep -qx "$inode"; then return 0; fi
  done
  return 1
}

# docrun_listening prints the inodes of the sockets that listen, one a line.
docrun_listening() { awk '$4 == "0A" { print $10 }' /proc/net/tcp /proc/net/tcp6; }

# docrun_await waits until all that the block started in the background listens, and
# opens no port any more.
docrun_await() {
  local pid until=$((SECONDS + 20)) before=none
  for pid in $(jobs -p); do
    if [[ " $docrun_started " == *" $pid "* ]]; then continue; fi
    docrun_started+=" $pid"
    until docrun_serves "$pid"; do
      if ! kill -0 "$pid" 2>/dev/null || [ "$SECONDS" -ge "$until" ]; then
        echo "what was started in the background listens nowhere"
        return 1
      fi
      sleep 0.1
    done
  done
  until [ "$before" = "$(docrun_listening)" ]; do
    before=$(docrun_listening)
    sleep 0.2
  done
}

# docrun_end STATUS: the block has ended.
docrun_end() {
  echo "$1" >"$docrun_folder/$docrun_name.status"
  trap - EXIT
}

# docrun_block NAME OUTPUT: runs a block, and ends the session where it fails.
docrun_block() {
  docrun_status=0
  if [ -e "$docrun_folder/$1.exit" ]; then
    set +e
    . "$docrun_folder/$1.sh" >"$docrun_folder/$1.$2" 2>&1
    docrun_status=$?
    set -e
    if [ "$docrun_status" != "$(cat "$docrun_folder/$1.exit")" ]; then
      docrun_end "$docrun_status"
      exit 1
    fi
  else
    . "$docrun_folder/$1.sh" >"$docrun_folder/$1.$2" 2>&1
    docrun_await >>"$docrun_folder/$1.$2"
  fi
}

for docrun_name in $(cd "$docrun_folder" && ls -- *.sh | sort -n); do
  docrun_name=${docrun_name%.sh}
  trap 'docrun_end "$?"' EXIT
  docrun_block "$docrun_name" out
  if [ -e "$docrun_folder/$docrun_name.twice" ]; then docrun_block "$docrun_name" again; fi
  docrun_end "$docrun_status"
done
