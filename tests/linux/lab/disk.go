package lab

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/nvme-anywhere/nvmeof/internal/crash"
)

// Disk is a disk with a volatile write cache, which a machine accesses through QEMU. It is a server of the NBD protocol
// (https://github.com/NetworkBlockDevice/nbd, doc/proto.md), in memory. Only one machine uses it at a time.
type Disk struct {
	socket   string
	listener net.Listener
	served   sync.WaitGroup

	mu     sync.Mutex
	unused sync.Cond // conn became nil
	medium *crash.Medium
	conn   net.Conn
	err    error // what QEMU sent that isn't understood

	broken atomic.Bool
}

// sector is the unit that a disk writes whole.
const sector = 512

// NewDisk makes a disk of size bytes of zeroes. dir is the directory of its socket.
func NewDisk(dir string, size int64) (*Disk, error) {
	d := &Disk{socket: filepath.Join(dir, "disk"), medium: crash.NewMedium(size, sector)}
	d.unused.L = &d.mu
	var err error
	if d.listener, err = net.Listen("unix", d.socket); err != nil {
		return nil, err
	}
	d.served.Go(d.accept)
	return d, nil
}

// Close ends the disk.
func (d *Disk) Close() {
	d.listener.Close()
	d.mu.Lock()
	if d.conn != nil {
		d.conn.Close()
	}
	d.mu.Unlock()
	d.served.Wait()
}

// PowerFail cuts the disk's power, after its machine was closed: what was in its cache is lost, except for sectors that
// rnd chooses. It returns how many sectors were in the cache.
func (d *Disk) PowerFail(rnd *rand.Rand) (cached int, err error) {
	d.powerless(func() {
		cached, err = d.medium.Pending(), d.err
		d.medium = crash.Restore(d.medium.Crash(rnd), sector)
	})
	return cached, err
}

// powerless calls do when nobody uses the disk any more.
func (d *Disk) powerless(do func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for d.conn != nil {
		d.unused.Wait()
	}
	do()
}

// Break makes all reads and writes fail from now on, or work again.
func (d *Disk) Break(broken bool) { d.broken.Store(broken) }

// accept serves one connection after another.
func (d *Disk) accept() {
	for {
		conn, err := d.listener.Accept()
		if err != nil {
			return
		}
		d.mu.Lock()
		d.conn = conn
		medium := d.medium
		d.mu.Unlock()
		err = (&nbd{conn: conn, in: bufio.NewReader(conn), medium: medium, broken: &d.broken}).serve()
		conn.Close()
		d.mu.Lock()
		d.conn = nil
		d.unused.Broadcast()
		if errors.Is(err, errNBD) { // everything else is the end of the machine
			d.err = err
		}
		d.mu.Unlock()
	}
}

// nbd is a connection of the NBD protocol.
type nbd struct {
	conn   net.Conn
	in     *bufio.Reader
	medium *crash.Medium
	broken *atomic.Bool
	buf    []byte
}

// Numbers of doc/proto.md.
const (
	nbdMagic       = 0x4e42444d41474943 // NBDMAGIC
	nbdOptionMagic = 0x49484156454f5054 // IHAVEOPT
	nbdReplyMagic  = 0x3e889045565a9    // of an option
	nbdRequest     = 0x25609513
	nbdAnswer      = 0x67446698

	nbdFixedNewstyle, nbdNoZeroes = 1, 2 // handshake flags

	nbdOptAbort, nbdOptInfo, nbdOptGo       = 2, 6, 7
	nbdRepAck, nbdRepInfo, nbdRepErrUnknown = 1, 3, 1<<31 | 1
	nbdInfoExport                           = 0

	nbdHasFlags, nbdSendFlush, nbdSendFUA, nbdSendTrim = 1, 4, 8, 32 // transmission flags

	nbdRead, nbdWrite, nbdDisconnect, nbdFlush, nbdTrim = 0, 1, 2, 3, 4
	nbdFUA                                              = 1     // command flag
	nbdIO, nbdInvalid                                   = 5, 22 // errors

	nbdMost = 32 << 20 // bytes of a request
)

// errNBD says that the peer violates the protocol.
var errNBD = errors.New("lab: not understood in the NBD protocol")

func (c *nbd) serve() error {
	if err := c.negotiate(); err != nil {
		return err
	}
	for {
		if err := c.request(); err != nil {
			return err
		}
	}
}

// negotiate is the fixed newstyle handshake, up to the option GO.
func (c *nbd) negotiate() error {
	hello := binary.BigEndian.AppendUint64(nil, nbdMagic)
	hello = binary.BigEndian.AppendUint64(hello, nbdOptionMagic)
	hello = binary.BigEndian.AppendUint16(hello, nbdFixedNewstyle|nbdNoZeroes)
	if _, err := c.conn.Write(hello); err != nil {
		return err
	}
	var flags uint32
	if err := binary.Read(c.in, binary.BigEndian, &flags); err != nil {
		return err
	}
	for {
		var o struct {
			Magic          uint64
			Option, Length uint32
		}
		if err := binary.Read(c.in, binary.BigEndian, &o); err != nil {
			return err
		}
		if o.Magic != nbdOptionMagic || o.Length > nbdMost {
			return fmt.Errorf("%w: option %+v", errNBD, o)
		}
		if _, err := c.in.Discard(int(o.Length)); err != nil { // any name means the only export
			return err
		}
		switch o.Option {
		case nbdOptInfo, nbdOptGo:
			info := binary.BigEndian.AppendUint16(nil, nbdInfoExport)
			info = binary.BigEndian.AppendUint64(info, uint64(c.medium.Size()))
			info = binary.BigEndian.AppendUint16(info, nbdHasFlags|nbdSendFlush|nbdSendFUA|nbdSendTrim)
			err := errors.Join(c.reply(o.Option, nbdRepInfo, info), c.reply(o.Option, nbdRepAck, nil))
			if err != nil || o.Option == nbdOptGo {
				return err
			}
		case nbdOptAbort:
			return io.EOF
		default:
			if err := c.reply(o.Option, nbdRepErrUnknown, nil); err != nil {
				return err
			}
		}
	}
}

func (c *nbd) reply(option, kind uint32, data []byte) error {
	b := binary.BigEndian.AppendUint64(nil, nbdReplyMagic)
	b = binary.BigEndian.AppendUint32(b, option)
	b = binary.BigEndian.AppendUint32(b, kind)
	b = binary.BigEndian.AppendUint32(b, uint32(len(data)))
	_, err := c.conn.Write(append(b, data...))
	return err
}

// request serves one request.
func (c *nbd) request() error {
	var q struct {
		Magic       uint32
		Flags, Type uint16
		Cookie      uint64
		Offset      uint64
		Length      uint32
	}
	if err := binary.Read(c.in, binary.BigEndian, &q); err != nil {
		return err
	}
	if q.Magic != nbdRequest || q.Length > nbdMost {
		return fmt.Errorf("%w: request %+v", errNBD, q)
	}
	const header = 16
	if n := header + int(q.Length); len(c.buf) < n {
		c.buf = make([]byte, n)
	}
	data := c.buf[header:][:q.Length]
	if q.Type == nbdWrite {
		if _, err := io.ReadFull(c.in, data); err != nil {
			return err
		}
	}
	var code uint32
	answer := c.buf[:header]
	size := uint64(c.medium.Size())
	switch {
	case q.Type == nbdDisconnect:
		return io.EOF
	case q.Offset > size || uint64(q.Length) > size-q.Offset:
		code = nbdInvalid
	case c.broken.Load():
		code = nbdIO
	case q.Type == nbdRead:
		c.medium.ReadAt(data, int64(q.Offset))
		answer = c.buf[:header+len(data)]
	case q.Type == nbdWrite:
		c.medium.WriteAt(data, int64(q.Offset))
		if q.Flags&nbdFUA != 0 {
			c.medium.WriteBack(int64(q.Offset), int64(q.Length))
			c.medium.Fence()
		}
	case q.Type == nbdFlush:
		c.medium.WriteBack(0, c.medium.Size())
		c.medium.Fence()
	case q.Type == nbdTrim: // may do nothing
	default:
		code = nbdInvalid
	}
	binary.BigEndian.PutUint32(answer, nbdAnswer)
	binary.BigEndian.PutUint32(answer[4:], code)
	binary.BigEndian.PutUint64(answer[8:], q.Cookie)
	_, err := c.conn.Write(answer)
	return err
}
