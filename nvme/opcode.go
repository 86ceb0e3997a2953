package nvme

// Opcode is byte 0 of a command. Admin and I/O commands share the number space: which of them an
// opcode means depends on the queue that carries the command.
type Opcode byte

// OpFabrics marks a Fabrics command on either kind of queue.
const OpFabrics Opcode = 0x7f

// Admin commands (NVMe base, figure "Opcodes for Admin Commands").
const (
	OpGetLogPage   Opcode = 0x02
	OpIdentify     Opcode = 0x06
	OpAbort        Opcode = 0x08
	OpSetFeatures  Opcode = 0x09
	OpGetFeatures  Opcode = 0x0a
	OpAsyncEvent   Opcode = 0x0c
	OpNSManagement Opcode = 0x0d
	OpNSAttachment Opcode = 0x15
	OpKeepAlive    Opcode = 0x18
	OpFormat       Opcode = 0x80
	OpSanitize     Opcode = 0x84
)

// I/O commands of the NVM command set.
const (
	OpFlush              Opcode = 0x00
	OpWrite              Opcode = 0x01
	OpRead               Opcode = 0x02
	OpWriteUncorrectable Opcode = 0x04
	OpCompare            Opcode = 0x05
	OpWriteZeroes        Opcode = 0x08
	OpDSM                Opcode = 0x09
	OpVerify             Opcode = 0x0c
	OpResvRegister       Opcode = 0x0d
	OpResvReport         Opcode = 0x0e
	OpResvAcquire        Opcode = 0x11
	OpResvRelease        Opcode = 0x15
	OpCopy               Opcode = 0x19
)

// FCType is byte 4 of a Fabrics command.
type FCType byte

// Fabrics command types.
const (
	FCPropertySet FCType = 0x00
	FCConnect     FCType = 0x01
	FCPropertyGet FCType = 0x04
	FCAuthSend    FCType = 0x05
	FCAuthReceive FCType = 0x06
	FCDisconnect  FCType = 0x08
)
