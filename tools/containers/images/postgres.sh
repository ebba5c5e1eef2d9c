# What the entry point of the official image does with the variables that docker-compose.yml sets.
set -eu
[ "$1" = postgres ] || exec "$@"
data=/var/lib/postgresql/data
if [ ! -e "$data/PG_VERSION" ]; then
    initdb --pgdata="$data" --username="$POSTGRES_USER" --pwfile="$POSTGRES_PASSWORD_FILE" \
        --auth-local=trust --auth-host=scram-sha-256 --encoding=UTF8 --locale=C.UTF-8
    echo "host all all all scram-sha-256" >> "$data/pg_hba.conf"
    echo "listen_addresses = '*'" >> "$data/postgresql.conf"
    pg_ctl --pgdata="$data" --options="-c listen_addresses=''" --wait start
    createdb --username="$POSTGRES_USER" "$POSTGRES_DB"
    pg_ctl --pgdata="$data" --wait stop
fi
exec "$@" -D "$data"
