// A client of grpc-go that names gzip for its requests, as one that imports the package `encoding/gzip` may.
//
// Arguments: HOST:PORT METHOD. It opens the stream of METHOD, such as /flagd.sync.v1.FlagSyncService/SyncFlags, with an
// empty request, and prints a JSON line for each message: {"message": base64 of the message, "encoding": text of the
// answer's grpc-encoding, "read": bytes that came for it}. It ends with the stream, and prints {"error": text} then.
package main

import (
	"context"
	"encoding/json"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/stats"
)

// raw is a codec of messages that are read elsewhere.
type raw struct{}

func (raw) Name() string { return "proto" }

func (raw) Marshal(message any) ([]byte, error) { return *message.(*[]byte), nil }

func (raw) Unmarshal(data []byte, message any) error {
	*message.(*[]byte) = append([]byte(nil), data...)
	return nil
}

// transport is told by grpc-go of each message's size and encoding before the message is handed out.
type transport struct {
	encoding string
	read     int
}

func (*transport) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

func (*transport) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

func (*transport) HandleConn(context.Context, stats.ConnStats) {}

func (seen *transport) HandleRPC(_ context.Context, event stats.RPCStats) {
	switch event := event.(type) {
	case *stats.InHeader:
		seen.encoding = event.Compression
	case *stats.InPayload:
		seen.read = event.CompressedLength
	}
}

type line struct {
	Message  []byte `json:"message"`
	Encoding string `json:"encoding"`
	Read     int    `json:"read"`
}

func main() {
	lines := json.NewEncoder(os.Stdout)
	if err := follow(os.Args[1], os.Args[2], lines); err != nil {
		lines.Encode(map[string]string{"error": err.Error()})
	}
}

func follow(target, method string, lines *json.Encoder) error {
	seen := &transport{}
	connection, err := grpc.NewClient(target,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(raw{}), grpc.UseCompressor(gzip.Name), grpc.MaxCallRecvMsgSize(1<<26)),
		grpc.WithStatsHandler(seen))
	if err != nil {
		return err
	}
	defer connection.Close()
	stream, err := connection.NewStream(context.Background(), &grpc.StreamDesc{ServerStreams: true}, method)
	if err != nil {
		return err
	}
	request := []byte{}
	if err := stream.SendMsg(&request); err != nil {
		return err
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	for {
		var message []byte
		if err := stream.RecvMsg(&message); err != nil {
			return err
		}
		lines.Encode(line{message, seen.encoding, seen.read})
	}
}
