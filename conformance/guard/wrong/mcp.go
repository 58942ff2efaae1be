package main

import (
	"context"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// serveMCP is an MCP server with a tool that fetches, or two, and one that does not.
func (c *client) serveMCP(ctx context.Context, twice bool) error {
	s := sdk.NewServer(&sdk.Implementation{Name: "wrong", Version: "1"}, nil)
	type target struct {
		URL string `json:"url"`
	}
	fetch := func(ctx context.Context, _ *sdk.CallToolRequest, to target) (*sdk.CallToolResult, any, error) {
		var body strings.Builder
		err := c.fetch(ctx, to.URL, &body)
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: body.String()}}}, nil, err
	}
	sdk.AddTool(s, &sdk.Tool{Name: "fetch"}, fetch)
	if twice {
		sdk.AddTool(s, &sdk.Tool{Name: "fetch_again"}, fetch)
	}
	type name struct {
		Host string `json:"host"`
	}
	sdk.AddTool(s, &sdk.Tool{Name: "look_up"}, func(context.Context, *sdk.CallToolRequest, name) (*sdk.CallToolResult, any, error) {
		return nil, nil, errRefused
	})
	return s.Run(ctx, &sdk.StdioTransport{})
}
