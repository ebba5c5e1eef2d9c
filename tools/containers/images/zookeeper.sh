# What the entry point of the official image does with the variables that docker-compose.yml sets.
set -eu
cat > /conf/zoo.cfg <<CONFIG
dataDir=/data
dataLogDir=/datalog
tickTime=${ZOO_TICK_TIME:-2000}
initLimit=${ZOO_INIT_LIMIT:-5}
syncLimit=${ZOO_SYNC_LIMIT:-2}
autopurge.snapRetainCount=3
autopurge.purgeInterval=${ZOO_AUTOPURGE_PURGEINTERVAL:-0}
maxClientCnxns=${ZOO_MAX_CLIENT_CNXNS:-60}
standaloneEnabled=true
admin.enableServer=${ZOO_ADMINSERVER_ENABLED:-true}
4lw.commands.whitelist=${ZOO_4LW_COMMANDS_WHITELIST:-srvr}
CONFIG
for server in ${ZOO_SERVERS:-server.1=localhost:2888:3888;2181}; do
    echo "$server" >> /conf/zoo.cfg
done
for entry in ${ZOO_CFG_EXTRA:-}; do
    echo "$entry" >> /conf/zoo.cfg
done
[ -e /data/myid ] || echo "${ZOO_MY_ID:-1}" > /data/myid
exec "$@"
