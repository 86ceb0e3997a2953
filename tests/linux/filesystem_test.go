package linux

import "testing"

// testFileSystem: an ext4 file system made over RDMA is whole over TCP, after a reconnect.
func testFileSystem(t *testing.T, p *peer) {
	serve(t, "--volume", "mem:256MiB")
	const sums = "find . -type f | sort | xargs -n 200 sha256sum"
	dev := p.connect(t, "rdma")
	p.must(t, "mkfs.ext4 -q -F "+dev+" && mkdir -p /mnt/fs && mount -t ext4 "+dev+" /mnt/fs")
	p.must(t, "cp -a /usr/bin /usr/sbin /usr/lib/modules /mnt/fs/")
	p.must(t, "mkdir /mnt/fs/many && cd /mnt/fs/many && for i in $(seq 2000); do echo $i > file$i; done")
	p.must(t, "cd /mnt/fs && "+sums+" > /tmp/before && cd / && umount /mnt/fs")
	p.must(t, "e2fsck -fn "+dev)
	p.disconnect(t)

	dev = p.connect(t, "tcp")
	p.must(t, "mount -t ext4 "+dev+" /mnt/fs && cd /mnt/fs && "+sums+" > /tmp/after && cmp /tmp/before /tmp/after")
	p.must(t, "rm -r /mnt/fs/many && fstrim /mnt/fs && umount /mnt/fs && e2fsck -fn "+dev)
	p.disconnect(t)
}
