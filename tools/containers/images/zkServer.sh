# What `zkServer.sh start-foreground` of the official image does.
set -eu
java=/usr/share/java
classpath=/conf
for name in zookeeper zookeeper-jute slf4j-api slf4j-simple metrics-core snappy-java netty-buffer netty-codec netty-common \
    netty-handler netty-resolver netty-transport netty-transport-native-epoll netty-transport-native-unix-common; do
    classpath="$classpath:$java/$name.jar"
done
exec java -cp "$classpath" ${JVMFLAGS:-} org.apache.zookeeper.server.quorum.QuorumPeerMain /conf/zoo.cfg
