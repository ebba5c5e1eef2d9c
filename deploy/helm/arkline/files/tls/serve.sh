# sh serve.sh zookeeper|redis|postgresql PROGRAM ARGUMENT...
#
# Becomes PROGRAM, with the server's certificate in /tmp/tls, and takes a renewed one while PROGRAM runs.
# The files come from a volume or Secret that belongs to another user; PostgreSQL wants to own its key.
set -eu
kind=$1
shift
from=${TLS_FROM:-/run/certificates}
to=${TLS_TO:-/tmp/tls}
export TLS_TO="$to"

# Succeeds if a file is new. Each is replaced as a whole; the key is in the file of its certificate.
take() {
    new=1
    for file in authority.pem server.pem; do
        if [ -s "$from/$file" ] && ! cmp -s "$from/$file" "$to/$file"; then
            cp "$from/$file" "$to/.$file" && chmod 600 "$to/.$file" && mv "$to/.$file" "$to/$file" && new=0
        fi
    done
    return $new
}

# ZooKeeper watches the files itself: client.certReload, since 3.7.2 and 3.8.1.
reload() {
    case $kind in
    redis)
        REDISCLI_AUTH=$(cat /run/redis-users/certificates) valkey-cli -s /tmp/redis.sock --user certificates --no-auth-warning \
            config set tls-cert-file "$to/server.pem" tls-key-file "$to/server.pem"
        ;;
    postgresql)
        kill -HUP "$(head -n 1 "${PGDATA:-/var/lib/postgresql/data}/postmaster.pid")"
        ;;
    esac
}

mkdir -p "$to"
chmod 700 "$to"
until take; do
    [ -s "$to/server.pem" ] && break # a container that was started again
    echo "serve.sh: waiting for $from/server.pem"
    sleep 2
done

(
    pending=
    while sleep "${TLS_EVERY:-30}"; do
        if take; then pending=1; fi
        # until the server has taken it: it may be starting
        if [ -n "$pending" ] && reload; then
            pending=
            echo "serve.sh: a renewed certificate is in use"
        fi
    done
) &

exec "$@"
