package linux

import (
	"testing"
)

// fileSystem is an ext4 file system on a volume that is passed from machine to machine.
type fileSystem struct {
	volume string
	sums   string // sha256sum of all files in it; empty until a machine has written them
	writer string // the kernel that wrote them
}

// sum sums the files of the directory it runs in.
const sum = "find . -type f | sort | xargs -n 200 sha256sum"

// testFileSystem: the file system that the previous machine made is intact; one that this machine makes over RDMA is
// intact over TCP.
func testFileSystem(t *testing.T, p *peer, fs *fileSystem) {
	serve(t, "--volume", fs.volume, "--size", "256MiB")
	if fs.sums != "" {
		t.Run("of-another", func(t *testing.T) {
			dev := p.connect(t, "tcp")
			p.must(t, "mkdir -p /mnt/fs && mount -o ro -t ext4 "+dev+" /mnt/fs")
			if now := p.must(t, "cd /mnt/fs && "+sum); now != fs.sums {
				t.Errorf("the files of %s have other checksums on %s", fs.writer, p.Image.Release)
			}
			p.must(t, "umount /mnt/fs")
			p.disconnect(t)
			t.Attr("files-written-by", fs.writer)
		})
	}
	t.Run("own", func(t *testing.T) {
		dev := p.connect(t, "rdma")
		p.must(t, "mkfs.ext4 -q -F "+dev+" && mkdir -p /mnt/fs && mount -t ext4 "+dev+" /mnt/fs")
		p.must(t, "cp -a /usr/bin /usr/sbin /usr/lib/modules /mnt/fs/")
		p.must(t, "mkdir /mnt/fs/many && cd /mnt/fs/many && for i in $(seq 2000); do echo $i > file$i; done")
		before := p.must(t, "cd /mnt/fs && "+sum+" && cd / && umount /mnt/fs")
		p.must(t, "e2fsck -fn "+dev)
		p.disconnect(t)

		dev = p.connect(t, "tcp")
		after := p.must(t, "mount -t ext4 "+dev+" /mnt/fs && cd /mnt/fs && "+sum)
		if before != after {
			t.Error("the files have other checksums over TCP")
		}
		p.must(t, "cd /mnt/fs && rm -r sbin && fstrim /mnt/fs")
		fs.sums, fs.writer = p.must(t, "cd /mnt/fs && "+sum), p.Image.Release
		p.must(t, "umount /mnt/fs && e2fsck -fn "+dev)
		p.disconnect(t)
	})
}
