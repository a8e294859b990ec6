#!/bin/sh
# Create the namespace `default` once the server answers. A failure ends this container, and it is started again.
set -eu
temporal operator cluster health
temporal operator namespace describe --namespace default || temporal operator namespace create --namespace default
