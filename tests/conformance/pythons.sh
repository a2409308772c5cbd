#!/usr/bin/env bash
# The conformance tests on every Python that the package is for and this machine has, side by side, each in a virtual
# environment of its own with what these tests need. It says which it found, and fails where tests fail.
set -euo pipefail
cd "$(dirname "$0")/../.."
PIP=(.venv/bin/python -W ignore -m pip --quiet --disable-pip-version-check)

working() { # a name may be there and not work, as the shims of pyenv do
  for candidate in "python$1" "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$1".*/bin/python; do
    if "$candidate" -c "import sys, venv; sys.exit('%d.%d' % sys.version_info[:2] != '$1')" 2>/dev/null; then
      echo "$candidate"
      return
    fi
  done
}

needed() {
  .venv/bin/python -c "
import tomllib
settings = tomllib.load(open('pyproject.toml', 'rb'))
print(*settings['project']['dependencies'], *settings['dependency-groups']['conformance'], sep='\n')"
}

check() { # version, interpreter
  local home=.venv-$1
  if [ ! -f "$home/.installed" ] || [ pyproject.toml -nt "$home/.installed" ]; then
    rm -rf "$home"
    "$2" -m venv --without-pip "$home"
    needed | xargs -d '\n' "${PIP[@]}" --python "$home/bin/python" install
    ln -s ../../../.. "$home/lib/python$1/site-packages/msgledger" # the root of the repository is the package
    touch "$home/.installed"
  fi
  "$home/bin/python" -m pytest --quiet tests/conformance
}

found=() missing=() failed=() logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
for version in 3.11 3.12 3.13; do
  python=$(working "$version")
  if [ -n "$python" ]; then
    found+=("$version")
    check "$version" "$python" >"$logs/$version" 2>&1 &
    echo $! >"$logs/$version.pid"
  else
    missing+=("$version")
  fi
done
echo "Pythons found: ${found[*]:-none}; missing: ${missing[*]:-none}"
[ ${#found[@]} -gt 0 ]
for version in "${found[@]}"; do
  wait "$(cat "$logs/$version.pid")" || failed+=("$version")
  echo "-- Python $version"
  cat "$logs/$version"
done
[ ${#failed[@]} -eq 0 ] || { echo "failed on Python ${failed[*]}"; exit 1; }
