package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/nvme-anywhere/nvmeof/blockdev"
)

var (
	volumeInfo     = gauge("volume_info", "What a volume is and how it is reached, with the value 1.", "volume", "kind", "mode")
	volumeSize     = gauge("volume_size_bytes", "Size of the volume.", "volume")
	volumeBlock    = gauge("volume_block_size_bytes", "Logical block of the volume.", "volume")
	volumeVolatile = gauge("volume_volatile_cache", "1 where a completed write may be lost before a Flush.", "volume")
)

func collectVolume(ch chan<- prometheus.Metric, name string, i blockdev.Info) {
	send(ch, volumeInfo, 1, name, i.Kind, text(i.Mode))
	send(ch, volumeSize, i.Size, name)
	send(ch, volumeBlock, i.BlockSize, name)
	send(ch, volumeVolatile, flag(i.VolatileCache), name)
}
